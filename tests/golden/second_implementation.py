"""Statistics and allocations a second time, from docs/formats.md alone: nothing here is the product's, nor numpy's."""

import hashlib
import json
import math
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

EPSILON = 1e-12
WORD = 2**64 - 1
MEASURED = ["pool_size", "calibration_size", "mean_nll", "error_rate", "mean_error", "bootstrap_sd"]
MEASURED += ["bootstrap_means", "slope"]
ALLOCATED = ["pool_size", "floor_quota", "residual_capacity", "need", "availability", "reliability", "utility"]
ALLOCATED += ["share", "residual_quota", "quota", "interval"]


def canonical(value: Any) -> Any:
    """RFC 8785 of what this file makes: keys sorted, shortest floats, integral ones without a point."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, float):
        return number(value)
    return json.dumps(value, ensure_ascii=False)


def number(value: Any) -> Any:
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    digits, exponent = f"{Decimal(repr(value)):e}".split("e")
    sign, digits = ("-", digits[1:]) if digits[0] == "-" else ("", digits)
    digits, point = digits.replace(".", "").rstrip("0"), int(exponent) + 1
    if point > 21 or point < -5:
        mantissa = digits[0] + ("." + digits[1:] if digits[1:] else "")
        return f"{sign}{mantissa}e{point - 1:+d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[:point]}.{digits[point:]}" if point < len(digits) else f"{sign}{digits:0<{point}}"


def digest(value: Any) -> Any:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def philox(seed: Any, label: Any) -> Any:
    """The 64-bit outputs of a source's stream."""
    name = hashlib.blake2b(canonical(["bootstrap", seed, label]).encode(), digest_size=32).digest()
    block = 0
    while True:
        block += 1
        key = [int.from_bytes(name[:8], "little"), int.from_bytes(name[8:16], "little")]
        c = (block, 0, 0, 0)
        for _ in range(10):
            first, second = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
            c = (second >> 64 ^ c[1] ^ key[0], second & WORD, first >> 64 ^ c[3] ^ key[1], first & WORD)
            key = [(key[0] + 0x9E3779B97F4A7C15) & WORD, (key[1] + 0xBB67AE8584CAA73B) & WORD]
        yield from c


def bootstrap(errors: Any, seed: Any, label: Any, resamples: Any) -> Any:
    errors, count = sorted(errors), len(errors)
    exponent = math.frexp(max(map(abs, errors)))[1]
    scale = 62 - count.bit_length() - exponent
    grid = [round(Fraction(z) * Fraction(2) ** scale) for z in errors]
    outputs = philox(seed, label)
    sums = [sum(grid[(next(outputs) >> 32) * count >> 32] for _ in range(count)) for _ in range(resamples)]
    means = [math.ldexp(float(total) / count, -scale) for total in sums]
    exact = [Fraction(mean) for mean in means]
    variance = sum(m * m for m in exact) / resamples - (sum(exact) / resamples) ** 2
    precise = Context(prec=60)
    root = precise.sqrt(precise.divide(Decimal(variance.numerator), Decimal(variance.denominator)))
    return means, float(root)


def mean(values: Any) -> Any:
    return float(sum(map(Fraction, values))) / len(values)


def statistics(scores: Any, pools: Any, seed: Any, resamples: Any, model: Any) -> Any:
    """The object of `statistics.json`; scores are (nll, correct) by label, correct None under `nll`."""
    rule = "nll" if any(right is None for rows in scores.values() for _, right in rows) else "nll+wrong"
    sources = {}
    for label in sorted(scores):
        rows = scores[label]
        errors = [nll if rule == "nll" or right else nll + 1.0 for nll, right in rows]
        means, spread = bootstrap(errors, seed, label, resamples)
        wrong = None if rule == "nll" else sum(not right for _, right in rows) / len(rows)
        means_of = mean([nll for nll, _ in rows]), wrong, mean(errors), spread, means, None
        sources[label] = dict(zip(MEASURED, (pools[label], len(rows), *means_of), strict=True))
    start = {"schema": "calibudget.statistics/1", "model": model, "error": rule}
    return start | {"bootstrap": {"resamples": resamples, "seed": seed}, "sources": sources}


def factors(sources: Any, floor: Any, means: Any) -> Any:
    raised, rows = [max(m, EPSILON) for m in means], []
    typical = mean(raised)
    for (_, row), m in zip(sorted(sources.items()), raised, strict=True):
        least = min(row["pool_size"], floor)
        need, room = m / typical, row["pool_size"] - least
        availability, reliability = math.sqrt(max(room, EPSILON)), 1.0 / (1.0 + row["bootstrap_sd"])
        utility = need * math.sqrt(availability) * reliability
        rows.append((least, room, need, availability, reliability, utility))
    return rows


def apportion(utilities: Any, rooms: Any, budget: Any) -> Any:
    """Exact shares at the water level, and largest-remainder quotas; all utilities are above 0."""
    exact, shares, free, left = list(map(Fraction, utilities)), dict[Any, Any](), set(range(len(rooms))), budget
    while True:
        total = sum(exact[k] for k in free)
        full = {k for k in free if left * exact[k] >= rooms[k] * total}
        if not full:
            break
        shares |= {k: Fraction(rooms[k]) for k in full}
        left, free = left - sum(rooms[k] for k in full), free - full
    shares |= {k: left * exact[k] / total for k in free}
    quotas = [math.floor(shares[k]) for k in range(len(rooms))]
    order = sorted(range(len(rooms)), key=lambda k: (quotas[k] - shares[k], k))
    for k in order[: budget - sum(quotas)]:
        quotas[k] += 1
    return [float(shares[k]) for k in range(len(rooms))], quotas


def allocation(stated: Any, budget: Any, floor: Any) -> Any:
    """The object of `allocation.json` under the policy calibudget."""
    sources = dict(sorted(stated["sources"].items()))
    rows = factors(sources, floor, [row["mean_error"] for row in sources.values()])
    residual, rooms = budget - sum(row[0] for row in rows), [row[1] for row in rows]
    shares, extras = apportion([row[5] for row in rows], rooms, residual)
    resamples, replicates = stated["bootstrap"]["resamples"], []
    for means in zip(*(row["bootstrap_means"] for row in sources.values()), strict=True):
        again = [row[5] for row in factors(sources, floor, means)]
        replicates.append(apportion(again, rooms, residual)[1])
    places = [math.ceil(Fraction(q, 1000) * resamples) - 1 for q in (25, 975)]
    made = {}
    for k, (label, source) in enumerate(sources.items()):
        ordered = sorted(rows[k][0] + one[k] for one in replicates)
        interval = [ordered[place] for place in places]
        values = source["pool_size"], *rows[k], shares[k], extras[k], rows[k][0] + extras[k], interval
        made[label] = dict(zip(ALLOCATED, values, strict=True))
    constant: Any = {"policy": "calibudget", "unit": "examples", "floors": None, "caps": None, "groups": None}
    constant |= {"exponents": {"need": 1.0, "availability": 0.5, "reliability": 1.0}, "need_transform": None}
    constant |= {"schema": "calibudget.allocation/1", "epsilon": EPSILON, "statistics_sha256": digest(stated)}
    quotas = {label: row["quota"] for label, row in made.items()}
    own = {"budget": budget, "floor": floor, "residual_budget": residual, "quotas_sha256": digest(quotas)}
    return constant | own | {"sources": made}
