"""Numbers and foreign text as a person reads them."""

from datetime import UTC, datetime


def plain(text: str) -> str:
    """Return text that cannot steer a terminal: what is not printable, but for line ends, is shown as an escape."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)


def duration(seconds: float) -> str:
    """Write seconds as ``0:05``, ``12:34`` or ``3:04:05``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def moment(unix_seconds: int | None) -> str:
    """Write a moment in UTC; nothing where there is none."""
    if unix_seconds is None:
        return ""
    return datetime.fromtimestamp(unix_seconds, tz=UTC).strftime("%Y-%m-%d %H:%M")


def size(length_bytes: int) -> str:
    """Write a number of bytes in kB, MB or GB (powers of 1000)."""
    # 999,950 would be shown as 1000.0 kB.
    for unit, unit_bytes, limit_bytes in (("B", 1, 1000), ("kB", 10**3, 999_950), ("MB", 10**6, 999_950_000)):
        if length_bytes < limit_bytes:
            return f"{length_bytes / unit_bytes:.{0 if unit == 'B' else 1}f} {unit}"
    return f"{length_bytes / 10**9:.1f} GB"
