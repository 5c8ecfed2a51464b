"""What a participant is told, sentence by sentence, from the task document alone, with the numbers of `chances`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any
from urllib.parse import urlsplit

from hybridp.public.budgets import LOCAL_LIMIT
from hybridp.service.chances import at_most_right, exact, in_words, notice, number, of_100, sent, sent_of, told_truly

__all__ = ["SENTENCES", "VISIT_HOURS", "notices", "number", "odds", "said", "sent", "sent_of", "when"]

Task = Mapping[str, Any]
_RARELY, _NEARLY = Fraction(9, 10), Fraction(199, 200)
VISIT_HOURS = 12
"""After so many hours a visit to an open study has ended, whatever the browser keeps."""


def when(seconds: float) -> str:
    """A moment for people; a number of seconds where the calendar ends."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%d %B %Y, %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:,.0f} seconds after the beginning of 1970"


# --- every sentence that promises something -------------------------------------------------------------------------
# The page shows these and no other claims; tests/service/test_words.py has a rule for each that computes it anew.


def _only(task: Task) -> Mapping[str, Any]:
    """The study's question, where there is one; nothing where there are several."""
    return task["questions"][0] if len(task["questions"]) == 1 else {}


def _heavy(task: Task) -> bool:
    return "record" in _only(task)


def _steered(task: Task) -> bool:
    """Whether local people are asked around what trusted people say."""
    return _only(task).get("form") == "steered"


_FIRST = {"regression": "the line", "records": "the frequent answers"}


def _first(task: Task) -> list[str]:
    """What trusted people say first, which is published before local people are asked about it, or near it."""
    said = [f"statistics of {q['name']}" if q.get("form") == "steered" else _FIRST.get(q["kind"], "")
            for q in task["questions"]]  # fmt: skip
    return list(filter(None, said))


def _line(task: Task) -> bool:
    """Whether the line of a regression is asked about, and nothing else."""
    return _only(task).get("kind") == "regression"


def _phased(task: Task) -> bool:
    return bool(_first(task))


def _named(task: Task) -> bool:
    """Whether a local person's report may name the very answer."""
    if _heavy(task):
        return "randomiser" in _only(task) and told_truly(_only(task)["randomiser"]) > 0
    return any(not {"options", "grid", "slots"}.isdisjoint(question) for question in task["questions"])


def _level(promise: Mapping[str, float]) -> str:
    delta = float(promise["delta"])
    tail = f", δ = {exact(delta)}" if delta else ""
    return f"ε = {exact(promise['epsilon'])}{tail} ({in_words(float(promise['epsilon']))})"


def _ways(task: Task) -> str:
    choose = "" if _local_odds(task) else " You choose whom you trust."
    if _phased(task):
        return f"There are two ways to answer, one after the other.{choose}"
    return f"There are {'three' if 'mixer' in task else 'two'} ways to answer.{choose}"


_SENT = {"trusted": "sent as they are", "local": "randomised", "shuffled": "mixed"}


def _once(task: Task) -> str:
    if task["by_invitation"]:
        return "Your invitation is good for one answer, one way or the other."
    if task.get("choices"):
        cost = "two answers together have twice the ε that you chose"
    else:
        # Also of a group that does not count: its reports are seen.
        ways: dict[float, list[str]] = {}
        for name, promise in task["guarantee"].items():
            if name != "mixed":
                ways.setdefault(promise["epsilon"], []).append(_SENT[name])
        cost = "two answers together have " + ", ".join(
            f"ε\u00a0=\u00a0{exact(2 * one)} instead of {exact(one)}" + f" ({' or '.join(sent)})" * (len(ways) > 1)
            for one, sent in ways.items()
        )
    return (
        "Please answer once, one way: of one visit the first answer counts. Nothing here stops a second visit, and it "
        f"weakens your protection: {cost}."
    )


def _uses(task: Task) -> str:
    if {"trusted", "local"} <= set(task["uses"]):
        return f"{'All' if 'mixer' in task else 'Both'} ways count in the result."
    if "trusted" not in task["uses"] and "mixer" in task:
        return "Only the second and the third way count in the result."
    return f"Only the {'first' if task['uses'] == ['trusted'] else 'second'} way counts in the result."


def _releases(task: Task) -> str:
    many = int(task["releases"])
    return "once" if many == 1 else f"up to {many:,} times"


def _trusted_published(task: Task) -> str:
    alone = ""
    if any("record" in question for question in task["questions"]):
        rare = f"1 in {math.floor(1 / task['guarantee']['trusted']['delta']):,}"
        alone = f" An answer that you alone gave is published with a chance of at most {rare}."
    if _heavy(task):
        every = "Answers that many people gave, word for word, each with its share of people, with random noise added."
        return every + alone
    if "trusted" not in task["uses"]:
        return f"Nothing of your answer. {_uses(task)}"
    if _line(task):
        return (
            f"{_statistics(task)}, from all answers that came this way, with random noise added, drawn once: first by "
            "itself, so that local people are asked about it, then together with what these say."
        )
    if _steered(task):
        return (
            "Statistics of all answers that came this way, with random noise added, drawn once: first by themselves, "
            "so that local people are asked near them, then together with what these say."
        )
    told = f"{_statistics(task)} of everybody’s answers, with random noise added, {_releases(task)}."
    if first := " and ".join(_first(task)):
        told += f" Before that {first} alone, of what came this way, so that local people are asked about it."
    return told + alone


def _statistics(task: Task) -> str:
    """What is published of a study's answers, whichever way they came."""
    if _line(task):
        return f"The {_explained(_only(task))}"
    if "grid" in _only(task):
        return f"{int(_only(task)['clusters']):,} centres, and how many people are near each,"
    if "coordinates" in _only(task):
        return "Averages"
    if _only(task).get("statistics") == ["mean"] and not task["by"] and not _steered(task):
        return "An average"
    asked = task["questions"]
    *several, last = dict.fromkeys(name for _, name in sorted(map(_published_of, asked)))
    told = f"{', '.join(several)} and {last}" if several else "the shares" if last == "shares" else last
    if not (private := _private_groups(task)):
        return told[0].upper() + told[1:]
    if len(asked) == 1:
        told = f"the {'shares' if told == 'the shares' else 'average'} within it"
    return f"How many people are in each group ({', '.join(private)}), and {told},"


def _published_of(question: Mapping[str, Any]) -> tuple[int, str]:
    """What is published of a question, and where it stands among what is published of others."""
    if "options" in question and "steps" not in question:
        return 0, "shares"
    if question["kind"] == "regression":
        return 3, f"the {_explained(question)},"
    if "record" in question:
        return 2, "answers that many people gave, word for word"
    return (2, "centres of groups") if "grid" in question else (1, "statistics")


def _explained(asked: Mapping[str, Any]) -> str:
    *on, target = (side["name"] for side in asked["coordinates"])
    return f"line that explains {target} by {', '.join(on)}"


def _trusted_promise(task: Task) -> str:
    if task.get("choices"):
        return "All that is published together keeps the ε that you choose."
    whole = _level(task["guarantee"]["trusted"])
    if int(task["releases"]) == 1:
        return f"What is published keeps {whole}."
    one = exact(task["each_release"]["trusted"]["epsilon"])
    return (
        f"Each of the {int(task['releases']):,} planned releases spends ε = {one}; all of them together keep {whole}."
    )


def _deleted(task: Task) -> str:
    if task["delete_by"] is None:
        return "No day is set on which it is deleted."
    last = when(task["delete_by"])
    if not task["delete_raw_after_release"]:
        return f"It is deleted from the study’s database on {last}."
    many = int(task["releases"])
    first = "the release" if many == 1 else f"the last of the {many:,} planned releases"
    if len(_first(task)) == len(task["questions"]):  # the final release reads no answer
        first = f"the release of the trusted people’s {'line' if _line(task) else 'statistics'}"
    if _heavy(task):
        first = "the list of frequent answers is made"
    return (
        f"Your answer is deleted from the study’s database after {first}, and on {last} at the latest, released or not."
    )


def _retention(task: Task) -> str:
    """How long answers are kept, by each way: what the code does, and what nothing here does."""
    if task["delete_by"] is None:
        kept = "Answers sent as they are have no day on which they are deleted."
    else:
        first = "after the release, and " if task["delete_raw_after_release"] else ""
        latest = " at the latest" if first else ""
        kept = (
            f"Answers sent as they are: deleted {first}by {when(task['delete_by'])}{latest}, or when the server next "
            "runs after that."
        )
    return f"{kept} Randomised reports: no day is set; they stay until the team deletes the study."


def odds(asked: Task, epsilon: float, delta: float = 0.0) -> str:
    """Above the limit: how little a report on one question hides, from its own randomiser; empty at or below it."""
    if epsilon <= LOCAL_LIMIT:
        return ""
    randomiser, named = asked.get("randomiser"), "options" in asked or "slots" in asked
    if randomiser is not None and named and "steps" not in asked and randomiser["name"] == "k-rr":
        truth = told_truly(randomiser)
        true = f"of 100 people {of_100(truth)} send their true answer"
        if truth >= _RARELY:
            return f"Your answer is changed only rarely: {true}."
        rare = f"somebody with another answer sends it {math.exp(epsilon):,.0f} times less often"
        return f"It hides little: {true}, and {rare}."
    right, whole = at_most_right(epsilon, delta), False
    if randomiser is not None and "steps" not in asked:
        found = notice(randomiser, epsilon, delta)
        right, whole = found.right, found.exact
    often = of_100(right) if right > _NEARLY else f"{'' if whole else 'at most '}about {of_100(right)}"
    return f"It hides little: a guess between two answers is right {often} times in 100; a coin toss is right 50 times."


def _local_odds(task: Task) -> str:
    if choices := task.get("choices"):
        worst = max(choices, key=lambda choice: float(choice["epsilon"]))
        told = odds(worst, float(worst["epsilon"]))
        return f"At ε = {exact(worst['epsilon'])}: {told[0].lower()}{told[1:]}" if told else ""
    promise = task["guarantee"]["local"]
    return odds(_only(task), float(promise["epsilon"]), float(promise["delta"]))


def _name_local(task: Task) -> str:
    if not _local_odds(task):
        return "I trust nobody"
    if task.get("choices"):
        return "I choose how much my report hides"
    return f"A report with {in_words(float(task['guarantee']['local']['epsilon']))}"


def _name_shuffled(task: Task, mixer: Mapping[str, Any]) -> str:
    epsilon = float(task["guarantee"]["mixed"]["epsilon"])
    return "I trust a mixer between us" if epsilon <= LOCAL_LIMIT else f"A mixed report with {in_words(epsilon)}"


def _run_by(mixer: Mapping[str, Any]) -> str:
    if mixer.get("run_by"):
        return f"By the study’s own word it is run by {mixer['run_by']}."
    return "The study does not say who runs it: ask before you rely on it."


def _local_stays(task: Task) -> str:
    public = ", ".join(by["name"] for by in task.get("by") or ())
    if _named(task) or "slots" in _only(task):
        beside = f", and your group ({public}) as it is" if public else ""
        return f"The report is drawn on this page; your answer leaves it only as the report{beside}."
    return "Your answer itself stays on this page." + (f" Your group ({public}) is sent as it is." if public else "")


def _local_seen(task: Task) -> str:
    seen = "The people who run the study and its server see the report, and keep it."
    if _named(task):
        return f"{seen} Whoever takes it for your answer may well be right."
    return f"{seen} Of your answer they see nothing else."


def _local_published(task: Task) -> str:
    if _heavy(task):
        return "How frequent each entry of the list is among all reports, corrected for chance."
    if "local" not in task["uses"]:
        return "Nothing of your report: only the first way counts in the result."
    return f"{_statistics(task)}{', from' if _line(task) else ' of'} all reports, corrected for chance."


def _local_promise(task: Task) -> str:
    if task.get("choices"):
        return "The report keeps the ε that you choose, whoever sees it and however often it is used."
    return f"The report keeps {_level(task['guarantee']['local'])}, whoever sees it and however often it is used."


def _private_groups(task: Task) -> list[str]:
    """The groups by which answers are told and that are private too: one report is about group and answer."""
    return [question["columns"][0] for question in task["questions"] if "columns" in question and not task["draws"]]


def _by_group(task: Task) -> str:
    """What is said of the groups by which answers are told."""
    public, private = [by["name"] for by in task["by"]], _private_groups(task)
    told = []
    if public:
        one = len(public) == 1
        told.append(
            f"Your group{'' if one else 's'} ({', '.join(public)}) {'is' if one else 'are'} sent and kept as "
            f"{'it is' if one else 'they are'}, whichever way you choose. No promise covers which one you are in."
        )
    if private:
        told.append(f"Your group ({', '.join(private)}) is a part of your answer: the promise covers both together.")
    return " ".join([*told, "The result is told by group."] if told else [])


def _one_drawn(task: Task) -> str:
    """What is asked of a local person where questions are drawn."""
    if not task.get("draws"):
        return ""
    return (
        f"One of the {len(task['questions']):,} questions, which this page draws by chance, whatever your answers are. "
        "It has the whole promise."
    )


def _mixing(say: Callable[[Task, Mapping[str, Any]], str]) -> Callable[[Task], str]:
    """A sentence about the mixer, where the study has one."""
    return lambda task: say(task, task["mixer"]) if "mixer" in task else ""


def _own_level(task: Task) -> str:
    return _level(task["guarantee"]["shuffled"])


def _shuffled_promise(task: Task, mixer: Mapping[str, Any]) -> str:
    level = _level(task["guarantee"]["mixed"])
    return f"Among at least {int(mixer['batch']):,} mixed reports yours keeps {level}, however often they are used."


def _weight(task: Task) -> str:
    if not task.get("choices"):
        return ""
    return "Less protection lets your answer count for more. The table below says what it means."


def _script(task: Task) -> str:
    return (
        "The program that randomises came with this page, from the study’s server: you rely on that server for it. It "
        "draws nothing if the numbers that it was given keep less than the promise shown here. Who would rather rely "
        "on their own machine can use the Python client."
    )


def _batch(task: Task) -> str:
    if _phased(task):
        return f"Nothing is published of one of the two before {int(task['min_batch']):,} people have taken part in it."
    return f"Nothing is published before {int(task['min_batch']):,} people have taken part."


def _time(task: Task) -> str:
    seconds = int(task["time_precision"])
    units = ((7 * 86_400, "week"), (86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
    size, name = next((size, name) for size, name in units if seconds % size == 0)
    step = name if seconds == size else f"{seconds // size:,} {name}s"
    return f"The time of your answer is kept rounded down to the {step}."


def _cookies(task: Task) -> str:
    if task["by_invitation"]:
        return "No cookies for participants, no trackers, nothing loaded from elsewhere."
    return (
        "One cookie, for this visit alone: a random number and the hour, so that what you send twice counts once. It "
        f"ends with the browser, or after {VISIT_HOURS} hours, and goes to this study’s page only. It is not stored "
        "as it is: a hash of it, with a secret key, names what you send. No trackers, nothing loaded from elsewhere."
    )


SENTENCES: Mapping[str, Callable[[Task], str]] = {
    "ways": _ways,
    "once": _once,
    "uses": _uses,
    "pick_trusted": lambda task: "My answer is sent as it is.",
    "name_local": _name_local,
    "local_odds": _local_odds,
    "pick_local": lambda task: _local_odds(task) or "My answer is randomised on my own device.",
    "trusted_sent": lambda task: "Your answer as it is. It is stored encrypted.",
    "trusted_seen": lambda task: "The people who run the study and its server can read it until it is deleted.",
    "trusted_published": _trusted_published,
    "trusted_promise": _trusted_promise,
    "deleted": _deleted,
    "retention": _retention,
    "asker": lambda task: "The people who run the study say so themselves; this page cannot check it.",
    "local_stays": _local_stays,
    "one_drawn": _one_drawn,
    "by_group": _by_group,
    "local_seen": _local_seen,
    "local_published": _local_published,
    "local_promise": _local_promise,
    "name_shuffled": _mixing(_name_shuffled),
    "pick_shuffled": _mixing(lambda task, mixer: "My answer is randomised, sealed and mixed with many others."),
    "shuffled_sealed": _mixing(
        lambda task, mixer: (
            "It is sealed here so that only the team can open it, and goes not to the team but to a mixer, "
            f"{urlsplit(mixer['url']).netloc}. {_run_by(mixer)}"
        )
    ),
    "shuffled_seen": _mixing(
        lambda task, mixer: (
            "The mixer sees that you take part, and cannot open the report. The team sees that you take part, and the "
            f"reports of at least {int(mixer['batch']):,} people in random order, without a name or a time."
        )
    ),
    "shuffled_published": _mixing(lambda task, mixer: _local_published(task)),
    "shuffled_promise": _mixing(_shuffled_promise),
    "shuffled_collude": _mixing(
        lambda task, mixer: (
            "If the team and the mixer put together what they know, they see which report is yours. Then your report "
            f"keeps {_own_level(task)}, and no more."
        )
    ),
    "shuffled_few": _mixing(
        lambda task, mixer: (
            f"If fewer than {int(mixer['batch']):,} people choose this way, their reports are sent on all the same "
            f"when the study closes. Then, too, only {_own_level(task)} holds, and the result says so."
        )
    ),
    "shuffled_held": _mixing(
        lambda task, mixer: "The mixer holds your sealed report until there are enough, or the study closes."
    ),
    "weight": _weight,
    "script": _script,
    "arrived": lambda task: (
        "Your answer has arrived and is stored, encrypted."
        if task["by_invitation"]
        else "An answer has arrived from this visit and is stored, encrypted. If you sent several, the first counts."
    ),
    "answered": lambda task: "An answer has arrived from this visit: one is enough, and another would not count.",
    "ticket": _mixing(
        lambda task, mixer: (
            "You have chosen the mixer in this visit. If your report did not get there, send it again: it takes one."
        )
    ),
    "another": lambda task: "Your visit ends here: the next answer from this device counts as another person’s.",
    # what else you should know: also in the task document
    "choice": lambda task: "Which way you chose is not hidden from the people who run the study.",
    "time": _time,
    "address": lambda task: (
        "The address that you come from limits how often pages are asked for and answers sent; this service neither "
        "stores nor logs it."
    ),
    "batch": _batch,
    "closes": lambda task: f"The study closes on {when(task['closes'])}." if task["closes"] else "",
    "crowd": lambda task: (
        "" if task["by_invitation"] else "Anyone with the link can answer, also more than once, also by a program."
    ),
    "cookies": _cookies,
}
"""What a participant is told, by name; empty where it does not apply."""

_MORE = ("choice", "time", "address", "batch", "closes", "crowd", "deleted")


def said(task: Task) -> dict[str, str]:
    """All sentences for a task document."""
    return {name: make(task) for name, make in SENTENCES.items()}


def notices(task: Task) -> list[str]:
    """What every participant should know beside the choice, for the task document."""
    found = [SENTENCES[name](task) for name in _MORE]
    return [text.replace("Your answer is deleted", "A trusted answer is deleted") for text in found if text]
