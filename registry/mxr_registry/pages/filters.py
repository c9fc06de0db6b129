"""How templates write values: times, sizes, numbers, commands; and charts as inline SVG.

Charts are in per cent and pixels, have a title and a description, and differ in lightness and order, not in colour
alone. No filter marks text of clients as safe.
"""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from mxr.display.text import counted
from mxr.util.codec import canonical

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
NEAR = 34
"""Characters of an option with its value that stay on one line."""


def moment(iso: str) -> datetime.datetime:
    """Return the time in a text of the API."""
    return datetime.datetime.fromisoformat(iso.replace("Z", "+00:00"))


def duration(seconds: float) -> str:
    """Return a duration in its largest unit, and the next one where that matters: `6 h 12 min`."""
    whole = int(seconds)
    if isinstance(seconds, float) and seconds < 10:
        return f"{seconds:.1f} s"
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole < 10 * MINUTE and whole % 60 else "")
    if whole < 2 * DAY:
        return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 >= MINUTE else "")
    return f"{whole // 86_400} d"


def age(iso: str) -> str:
    """Return how long ago a time is: `40 s`."""
    return duration(max(0, int((datetime.datetime.now(datetime.timezone.utc) - moment(iso)).total_seconds())))


def machine_time(iso: str) -> str:
    """Return a time for `datetime`, which allows milliseconds at most."""
    return f"{moment(iso):%Y-%m-%dT%H:%M:%S}Z"


def exact_time(iso: str) -> str:
    """Return a time with its date and second."""
    return f"{moment(iso):%Y-%m-%d %H:%M:%S} UTC"


def short_time(iso: str) -> str:
    """Return a time without its year and second."""
    found = moment(iso)
    return f"{found.day} {found:%b %H:%M} UTC"


def size(count: float) -> str:
    """Return bytes in their largest binary unit."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def number(count: float) -> str:
    """Return a count with separated thousands."""
    return f"{count:,}"


def breakable(value: object) -> Markup:
    """Return a word that may break after a dot, a comma or an underscore."""
    return Markup(re.sub(r"([._,×/])(?=\w)", r"\1<wbr>", str(escape(value))))


def command_words(text: object) -> Markup:
    """Return a command whose words do not break at a hyphen, and whose short options stay beside their values."""
    words, found, at = str(text).split(" "), [], 0
    while at < len(words):
        word, following = words[at], words[at + 1] if at + 1 < len(words) else "-"
        if word.startswith("-") and not following.startswith("-") and len(word) + len(following) < NEAR:
            word, at = f"{word} {following}", at + 1
        whole = "-" in word and len(word) <= NEAR + 1
        found.append(Markup('<span class="w">{}</span>').format(word) if whole else escape(word))
        at += 1
    return Markup(" ").join(found)


MOST_SHOWN = 200
"""Letters of a value that are shown: clients decide how long it is. The JSON has all of it."""


def value_text(value: Any) -> str:
    """Return a value of a field for people, shortened."""
    text = _value_text(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        dims = all(each is None or isinstance(each, int) for each in value)
        return "×".join("?" if each is None else str(each) for each in value) if dims else canonical(value)
    if value is None:
        return "none"
    return value if isinstance(value, str) else canonical(value)


def hour_bars(data: Mapping[str, Sequence[int]]) -> Markup:
    """Return a chart of answered and missed requests by the hour."""
    pairs = list(zip(data["answered"], data["missed"], strict=True))
    most, height, width = max((sum(each) for each in pairs), default=0) or 1, 60, 100 / max(1, len(pairs))
    bars = []
    for place, (answered, missed) in enumerate(pairs):
        up, down = round(answered / most * height, 1), round(missed / most * height, 1)
        down = max(1.5, down) if missed else 0
        at, wide = round(place * width, 2), round(width * 0.8, 2)
        rect = '<rect class="{}" x="{}%" y="{}" width="{}%" height="{}"></rect>'
        bars.append(Markup(rect).format("f2", at, round(height - up, 1), wide, up))
        if missed:
            top = max(0.0, round(height - up - down - 1, 1))
            bars.append(Markup(rect).format("fb", at, top, wide, down))
    told = Markup("<title>Requests answered and missed by the hour</title><desc>{}</desc>").format(
        f"{number(sum(data['answered']))} answered and {number(sum(data['missed']))} missed in {len(pairs)} hours; "
        f"at most {number(most)} in an hour."
    )
    axis = Markup('<line class="axis" x1="0" x2="100%" y1="{0}" y2="{0}"></line>').format(height - 0.5)
    return Markup('<svg class="chart" height="{}" role="img">{}{}{}</svg>').format(
        height, told, Markup("").join(bars), axis
    )


def day_bars(counts: Sequence[int]) -> Markup:
    """Return a chart of uses by the day."""
    most, height, width = max(counts, default=0) or 1, 84, 100 / max(1, len(counts))
    rect = Markup('<rect class="f1" x="{}%" y="{}" width="{}%" height="{}"></rect>')
    bars = []
    for place, count in enumerate(counts):
        high = max(1.0, round(count / most * (height - 2), 1)) if count else 0
        if count:
            bars.append(rect.format(round(place * width, 2), round(height - high, 1), round(width * 0.75, 2), high))
    told = Markup("<title>Uses by the day</title><desc>{}</desc>").format(
        f"{number(sum(counts))} uses in {len(counts)} days, at most {number(most)} on one."
    )
    axis = Markup('<line class="axis" x1="0" x2="100%" y1="{0}" y2="{0}"></line>').format(height - 0.5)
    return Markup('<svg class="chart" height="{}" role="img">{}{}{}</svg>').format(
        height, told, Markup("").join(bars), axis
    )


CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")


def visible(value: Any) -> Any:
    """Return what a template writes, with escapes in place of characters that HTML forbids."""
    if not isinstance(value, str) or CONTROLS.search(value) is None:
        return value
    text = CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", value)
    return Markup(text) if isinstance(value, Markup) else text


def age_marks(ages: Sequence[int]) -> Markup:
    """Return a chart with a mark for each waiting job, placed by its age on a logarithmic scale up to ten hours."""
    line = Markup('<line class="{}" x1="{}%" x2="{}%" y1="{}" y2="{}"></line>')
    marks = [line.format("grid", at, at, 2, 20) for at in map(_age_place, (MINUTE, 600, HOUR, 36_000))]
    marks += [line.format("p1", at, at, 5, 17) for at in sorted({_age_place(age) for age in ages})]
    axis = Markup('<line class="axis" x1="0" x2="98%" y1="20.5" y2="20.5"></line>')
    return Markup('<svg class="chart" height="22" aria-hidden="true">{}{}</svg>').format(Markup("").join(marks), axis)


def _age_place(age: float) -> float:
    return round(math.log10(min(max(age, 21), 36_000) / 20) / math.log10(1_800) * 98, 1)


def age_scale(_: object = None) -> Markup:
    """Return the scale of `age_marks`."""
    text = Markup('<text x="{}%" y="12" text-anchor="{}">{}</text>')
    words = ((MINUTE, "1 min"), (600.0, "10 min"), (HOUR, "1 h"), (36_000.0, "10 h"))
    shown = [text.format(_age_place(at), "end" if at > HOUR else "middle", word) for at, word in words]
    return Markup('<svg class="chart" height="16" aria-hidden="true">{}</svg>').format(Markup("").join(shown))


def bar(parts: Iterable[tuple[str, float, float]], height: int = 12) -> Markup:
    """Return a line with parts: class, where it begins and how long it is, both in per cent."""
    rect = Markup('<rect class="{}" x="{}%" width="{}%" height="{}"></rect>')
    drawn = [rect.format(mark, round(at, 2), round(max(wide, 0.6), 2), height) for mark, at, wide in parts]
    ground = Markup('<rect class="f0" width="100%" height="{}" rx="2"></rect>').format(height)
    return Markup('<svg class="bar" aria-hidden="true">{}{}</svg>').format(ground, Markup("").join(drawn))


SLOTS = 48
"""Parts of a strip: a busy worker has thousands of attempts in a day, and a page has a bounded size."""


def day_strip(parts: Sequence[Mapping[str, Any]]) -> Markup:
    """Return what a worker did in each half hour of a day: see `attempts.by_worker`."""
    slots = [""] * SLOTS
    for part in parts:
        mark = "f1" if part["state"] in ("done", "running") else "fb"
        first, last = (min(SLOTS - 1, int(SLOTS * (1 - part[edge] / DAY))) for edge in ("from", "to"))
        for at in range(max(0, first), last + 1):
            slots[at] = max(slots[at], mark)
    drawn, at = [], 0
    for mark, same in itertools.groupby(slots):
        count = len(list(same))
        if mark:
            drawn.append((mark, 100 * at / SLOTS, 100 * count / SLOTS))
        at += count
    return bar(drawn, 8)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "duration": duration,
    "age": age,
    "machine_time": machine_time,
    "exact_time": exact_time,
    "short_time": short_time,
    "size": size,
    "number": number,
    "breakable": breakable,
    "command_words": command_words,
    "value_text": value_text,
    "hour_bars": hour_bars,
    "age_marks": age_marks,
    "day_bars": day_bars,
    "age_scale": age_scale,
    "bar": bar,
    "day_strip": day_strip,
    "counted": counted,
}
"""The filters, by name."""
