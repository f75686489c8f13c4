/** Payloads and results: bytes stay bytes, everything else travels as JSON. */

import { Format } from "./generated/queue.js";

const HALF = /\p{Surrogate}/u;

/** The bytes of a value and what they are. Throws a `TypeError` for what JSON cannot hold. */
export function encode(value: unknown): { data: Buffer; format: Format } {
  if (value instanceof Uint8Array) {
    return { data: Buffer.from(value.buffer, value.byteOffset, value.byteLength), format: Format.BYTES };
  }
  if (value instanceof ArrayBuffer) {
    return { data: Buffer.from(value), format: Format.BYTES };
  }
  const text = JSON.stringify(value === undefined ? null : value);
  if (text === undefined) {
    throw new TypeError(`a ${typeof value} is neither bytes nor JSON`);
  }
  // Looking at each value costs more than writing it: only where one may have become `null`.
  if (text.includes("null")) {
    JSON.stringify(value, refuseLost);
  }
  return { data: Buffer.from(text), format: Format.JSON };
}

/** Throws for a number or a date that JSON has as `null`. */
function refuseLost(this: Record<string, unknown>, name: string, value: unknown): unknown {
  const isNumber = typeof value === "number" && !Number.isFinite(value);
  const isDate = value === null && this[name] instanceof Date;
  if (isNumber || isDate) {
    const where = name === "" ? "it" : `${JSON.stringify(name)} in it`;
    throw new TypeError(`the value cannot be sent as JSON: ${where} is ${isNumber ? value : "an invalid date"}`);
  }
  return value;
}

/** What the getters of an object answer, for `JSON.stringify`. */
export function gettersOf(object: object, without: readonly string[] = []): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  const properties = Object.getOwnPropertyDescriptors(Object.getPrototypeOf(object) as object);
  for (const [name, { get }] of Object.entries(properties)) {
    if (get !== undefined && !without.includes(name)) {
      values[name] = get.call(object);
    }
  }
  return values;
}

/** The value that `encode` made the bytes of; `undefined` for JSON that was left out. */
export function decode(data: Buffer, format: Format): any {
  if (format === Format.JSON) {
    return data.length > 0 ? JSON.parse(data.toString()) : undefined;
  }
  return data;
}

/** The names that an object of options may hold; the compiler asks for every one of them. */
export function names<Options>(known: Record<keyof Options, true>): ReadonlySet<string> {
  return new Set(Object.keys(known));
}

/** Throws for an unknown name: in plain JavaScript nothing else detects a misspelt one. */
export function checkNames(options: object, known: ReadonlySet<string>, of: string): void {
  for (const name in options) {
    if (!known.has(name)) {
      throw new TypeError(`${of} has no option ${JSON.stringify(name)}, only ${[...known].join(", ")}`);
    }
  }
}

/** The text itself; throws for what cannot be sent as one, as UTF-8 has no half of a surrogate pair. */
export function text(value: string, name: string): string {
  if (typeof value !== "string") {
    throw new TypeError(`${name} must be a string, not ${String(value)}`);
  }
  if (HALF.test(value)) {
    throw new RangeError(`${name} cannot be sent: ${JSON.stringify(value)} has half of a surrogate pair`);
  }
  return value;
}

/** A duration in whole milliseconds, rounded up so that a short one does not become none. */
export function milliseconds(duration: number, name: string): number {
  if (!(duration >= 0 && duration <= Number.MAX_SAFE_INTEGER)) {
    throw new RangeError(`${name} must be a duration of zero milliseconds or more, not ${duration}`);
  }
  return Math.ceil(duration);
}

/** A whole number that the contract holds in 32 bits. */
export function count(value: number, name: string): number {
  if (!Number.isInteger(value) || value < 0 || value > 0xffff_ffff) {
    throw new RangeError(`${name} must be a whole number of zero or more, not ${value}`);
  }
  return value;
}

/** A point in time in milliseconds since 1970. */
export function unixMilliseconds(instant: Date | number, name: string): number {
  const time = Math.round(Number(instant));
  if (!Number.isSafeInteger(time)) {
    throw new RangeError(`${name} must be a point in time, not ${String(instant)}`);
  }
  return time;
}

/** A time of the contract; zero stands for none. */
export function moment(unixMs: number): Date | undefined {
  return unixMs === 0 ? undefined : new Date(unixMs);
}
