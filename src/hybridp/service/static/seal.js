// Seals a report for the collector, so that the mixer on the way cannot read it: HPKE (RFC 9180), base mode, with
// X25519, HKDF-SHA256 and AES-128-GCM, by the browser's own cryptography.

const bytes = (text) => new TextEncoder().encode(text);
const VERSION = bytes("HPKE-v1");
const KEM = Uint8Array.of(...bytes("KEM"), 0x00, 0x20);
const SUITE = Uint8Array.of(...bytes("HPKE"), 0x00, 0x20, 0x00, 0x01, 0x00, 0x01);
const NOTHING = new Uint8Array(0);

function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

async function hmac(key, message) {
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const imported = await crypto.subtle.importKey("raw", key, algorithm, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, message));
}

// An empty salt is as good as 32 zeros (RFC 5869), and the browser takes no empty key.
function extract(suite, salt, label, secret) {
  return hmac(salt.length ? salt : new Uint8Array(32), joined(VERSION, suite, bytes(label), secret));
}

// At most 32 bytes: one block of the expansion.
async function expand(suite, key, label, info, size) {
  const asked = joined(Uint8Array.of(0, size), VERSION, suite, bytes(label), info, Uint8Array.of(1));
  return (await hmac(key, asked)).slice(0, size);
}

export const text = (raw) =>
  btoa(String.fromCharCode(...raw)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

export const fromText = (given) =>
  Uint8Array.from(atob(given.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));

// Whether this browser can do it.
export async function canSeal() {
  try {
    await crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]);
    return true;
  } catch {
    return false;
  }
}

// The sealed report, 48 bytes longer than the body.
export async function seal(body, to, study) {
  const own = await crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]);
  const sent = new Uint8Array(await crypto.subtle.exportKey("raw", own.publicKey));
  const theirs = await crypto.subtle.importKey("raw", to, { name: "X25519" }, true, []);
  const shared = new Uint8Array(await crypto.subtle.deriveBits({ name: "X25519", public: theirs }, own.privateKey, 256));
  if (shared.every((byte) => byte === 0)) throw new Error("The study’s key is not a good one.");
  const extracted = await extract(KEM, NOTHING, "eae_prk", shared);
  const secret = await expand(KEM, extracted, "shared_secret", joined(sent, to), 32);
  const info = joined(bytes("hybridp mixed report 1\0"), bytes(study));
  const context = joined(
    Uint8Array.of(0),
    await extract(SUITE, NOTHING, "psk_id_hash", NOTHING),
    await extract(SUITE, NOTHING, "info_hash", info),
  );
  const scheduled = await extract(SUITE, secret, "secret", NOTHING);
  const key = await expand(SUITE, scheduled, "key", context, 16);
  const nonce = await expand(SUITE, scheduled, "base_nonce", context, 12);
  const cipher = await crypto.subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
  const hidden = await crypto.subtle.encrypt({ name: "AES-GCM", iv: nonce }, cipher, body);
  return joined(sent, new Uint8Array(hidden));
}
