"""Names of every object in the store. Nothing a customer typed is ever part of one.

::

    inputs/<file id>                               an uploaded file, as sent
    plans/<batch id>/<claim token>.plan            its lines in the order they are run
    plans/<batch id>/<claim token>.index           sidecar: line, custom_id, offset, length, chunk
    plans/<batch id>/<claim token>.errors          error lines of the lines refused while planning
    parts/<batch id>/<seq>-<lease token>.out|.err  what one attempt at one chunk wrote
    parts/<batch id>/<seq>-<lease token>.<n>       what its n-th checkpoint kept
    outputs/<batch id>-<claim token>.out|.err      the joined result files

A name holds the token of whoever wrote it, so two attempts never write to one name and a late one harms nobody.
"""

import re
import uuid
from typing import Final

from slackwater.domain.ids import BatchId, FileId, LeaseToken

INPUTS: Final = "inputs"
PLANS: Final = "plans"
PARTS: Final = "parts"
OUTPUTS: Final = "outputs"
FOLDERS: Final = (INPUTS, PLANS, PARTS, OUTPUTS)

_GRAMMAR: Final = re.compile(r"[a-z0-9][a-z0-9_.-]*(/[a-z0-9][a-z0-9_.-]*)*")
_OWNER: Final = re.compile(r"(?:file-|batch_)[0-9a-f]{32}")


def input_key(file: FileId) -> str:
    """Name the bytes of an uploaded file."""
    return f"{INPUTS}/{file}"


def plan_key(batch: BatchId, claim: uuid.UUID) -> str:
    """Name the plan object: the input's lines in the order they are run."""
    return f"{PLANS}/{batch}/{claim.hex}.plan"


def plan_index_key(batch: BatchId, claim: uuid.UUID) -> str:
    """Name the plan's sidecar index."""
    return f"{PLANS}/{batch}/{claim.hex}.index"


def plan_errors_key(batch: BatchId, claim: uuid.UUID) -> str:
    """Name the error lines of the lines refused while planning."""
    return f"{PLANS}/{batch}/{claim.hex}.errors"


def part_output_key(batch: BatchId, seq: int, lease: LeaseToken) -> str:
    """Name the output lines that one attempt at chunk ``seq`` wrote."""
    return f"{PARTS}/{batch}/{seq}-{lease.hex}.out"


def part_errors_key(batch: BatchId, seq: int, lease: LeaseToken) -> str:
    """Name the error lines that one attempt at chunk ``seq`` wrote."""
    return f"{PARTS}/{batch}/{seq}-{lease.hex}.err"


def segment_key(batch: BatchId, seq: int, lease: LeaseToken, segment_no: int) -> str:
    """Name what one checkpoint of an attempt at chunk ``seq`` kept."""
    return f"{PARTS}/{batch}/{seq}-{lease.hex}.{segment_no}"


def output_key(batch: BatchId, claim: uuid.UUID) -> str:
    """Name the joined output file of a batch."""
    return f"{OUTPUTS}/{batch}-{claim.hex}.out"


def errors_key(batch: BatchId, claim: uuid.UUID) -> str:
    """Name the joined error file of a batch."""
    return f"{OUTPUTS}/{batch}-{claim.hex}.err"


def parts_prefix(batch: BatchId) -> str:
    """Name the folder of all attempts' parts of a batch."""
    return f"{PARTS}/{batch}"


def plans_prefix(batch: BatchId) -> str:
    """Name the folder of all plans of a batch."""
    return f"{PLANS}/{batch}"


def owner_of(key: str) -> FileId | BatchId | None:
    """Tell which file or batch an object belongs to; None for a name that is not one of ours."""
    folder, _, rest = key.partition("/")
    found = _OWNER.match(rest)
    if folder not in FOLDERS or found is None:
        return None
    owner = found.group()
    return FileId(owner) if owner.startswith("file-") else BatchId(owner)


def checked(key: str) -> str:
    """Return the key if it is made of plain lower-case names and slashes only, else raise ValueError.

    A second lock: a name that could climb out of the store's folder never reaches it, whoever made it.
    """
    if _GRAMMAR.fullmatch(key) is None:
        raise ValueError(f"not an object key: {key!r}")
    return key
