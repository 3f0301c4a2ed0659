// SPDX-License-Identifier: GPL-2.0-only
// How numbers are written: the same rules as quantities.py, for the labels of charts.
"use strict";
(function (tlstax) {
  const NO_BREAK = "\u00a0";
  const MINUS = "\u2212";
  const ABSENT = "\u2013";
  const NOTHING = 0.005;
  const TIME_UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"], [1, "ns"]];

  const BYTE_UNITS = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
  const AXIS_UNITS = {
    time_ns: TIME_UNITS,
    bytes_per_second: BYTE_UNITS.map(([scale, name]) => [scale, name + "/s"]),
    share: [[0.01, "%"]],
    per_second: [[1, "/s"]],
  };

  function decimals(magnitude) {
    if (magnitude >= 99.95) return 0;
    return magnitude >= 9.995 ? 1 : 2;
  }

  // As Python rounds: the number's exact value, and a tie to the even digit.
  function rounded(value, digits) {
    const exact = value.toFixed(digits + 30);
    const kept = exact.slice(0, -30).replace(/\.$/, "");
    const isTie = /^50*$/.test(exact.slice(-30));
    return isTie && Number(kept.at(-1)) % 2 === 0 ? kept : value.toFixed(digits);
  }

  function fixed(value, digits) {
    const [whole, ...part] = rounded(Math.abs(value), digits).split(".");
    const text = [whole.replace(/\B(?=(\d{3})+$)/g, ","), ...part].join(".");
    return value >= 0 || !/[1-9]/.test(text) ? text : MINUS + text;
  }

  function absent(value) {
    return value === null || value === undefined || !Number.isFinite(value);
  }

  function unit(value) {
    return TIME_UNITS.find(([scale]) => Math.abs(value) >= scale * 0.9995) ?? TIME_UNITS.at(-1);
  }

  function time(valueNs) {
    if (absent(valueNs)) return ABSENT;
    if (Math.abs(valueNs) < NOTHING) return "0" + NO_BREAK + "ns";
    const [scale, name] = unit(valueNs);
    const scaled = valueNs / scale;
    const digits = scale === 1 && Number.isInteger(valueNs) ? 0 : decimals(Math.abs(scaled));
    return fixed(scaled, digits) + NO_BREAK + name;
  }

  function share(value) {
    if (absent(value)) return ABSENT;
    const percent = value * 100;
    let digits = Math.abs(percent) < 0.95 || percent >= 99 ? 2 : 1;
    if (percent === 0 || percent === 100) digits = 0;
    return fixed(percent, digits) + NO_BREAK + "%";
  }

  function count(value) {
    if (absent(value)) return ABSENT;
    return fixed(value, Number.isInteger(value) ? 0 : 2);
  }

  // A tick's number: as many digits as it needs, at most six.
  function plain(value) {
    return (+value.toPrecision(6)).toLocaleString("en-US", { maximumFractionDigits: 6 });
  }

  // Ticks of an axis: one unit for the whole axis, so that they can be compared at a glance.
  function ticks(kind, highest) {
    const units = AXIS_UNITS[kind] ?? [[1, ""]];
    const [scale, name] = units.find(([size]) => highest >= size) ?? units.at(-1);
    return { scale, text: (value) => plain(value) + (name && NO_BREAK + name) };
  }

  // The same for values that Plot has in nanoseconds.
  function timeTicks(highestNs) {
    const { scale, text } = ticks("time_ns", highestNs);
    return (valueNs) => text(valueNs / scale);
  }

  // A size at a tick, in the largest unit that leaves at least 1.
  function size(bytes) {
    const [scale, name] = BYTE_UNITS.find(([least]) => bytes >= least) ?? BYTE_UNITS.at(-1);
    return plain(+(bytes / scale).toPrecision(3)) + NO_BREAK + name;
  }

  function quantile(q) {
    return q >= 1 ? "max" : "p" + plain(q * 100);
  }

  tlstax.format = { time, share, count, size, quantile, ticks, timeTicks };
})((window.tlstax = window.tlstax || {}));
