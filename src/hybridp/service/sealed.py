"""RAW: a study's trusted answers as they lie in the store, unsealed some at a time for the curator's readers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from hybridp.service.keys import RowCipher
from hybridp.service.parts.records import unpacked_record
from hybridp.service.schema import TRUSTED
from hybridp.service.store import stream

__all__ = ["Sealed"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sealed:
    """RAW: a study's trusted answers, unsealed some at a time; the curator reads them (`hybridp.curator.sources`)."""

    db: Connection
    number: int
    cipher: RowCipher

    def _parts(self) -> Iterator[tuple[list[tuple[Any, ...]], list[bytes]]]:
        for rows in stream(self.db, self.number, TRUSTED):
            yield rows, [self.cipher.unseal(bytes(row[2]), bytes(row[0])) for row in rows]

    def numbers(self, width: int = 1) -> Iterator[Floats]:
        for rows, bodies in self._parts():
            yield np.frombuffer(b"".join(bodies), dtype="<f8").reshape(len(rows), width)

    def codes(self, width: int = 1) -> Iterator[NDArray[np.int64]]:
        for rows, bodies in self._parts():
            yield np.frombuffer(b"".join(bodies), dtype="<i8").reshape(len(rows), width)

    def by_epsilon(self) -> Iterator[tuple[float, Floats]]:
        for rows, bodies in self._parts():
            own, values = np.array([row[1] for row in rows]), np.frombuffer(b"".join(bodies), dtype="<f8")
            for epsilon in sorted(set(own.tolist())):
                yield epsilon, values[own == epsilon]

    def records(self) -> Iterator[list[tuple[str, ...]]]:
        for _, bodies in self._parts():
            yield [unpacked_record(body) for body in bodies]
