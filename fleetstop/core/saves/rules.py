"""The rules of this room as data, for the script that has to follow them where we are not.

remote/scripts/saves.py is it: it looks for the newest complete checkpoint once its client has left.
"""

from __future__ import annotations

from typing import Any

from fleetstop.core.saves import checkpoint, formats, listing, wholeness


def told() -> dict[str, Any]:
    """Globs are matched against lower-case names, one part of a path each; patterns as a whole."""
    return {
        "temp": list(checkpoint.TEMP),
        "log_like": list(checkpoint.LOG_LIKE),
        "none": list(checkpoint.NO_CHECKPOINT),
        "mlflow": checkpoint.MLFLOW.pattern,
        "model": checkpoint.MODEL.pattern,
        "pointers": sorted(checkpoint.POINTERS),
        "last_written": list(checkpoint.LAST_WRITTEN),
        "dcp_index": checkpoint.DCP_INDEX,
        "hf_state": checkpoint.HF_STATE,
        "hf_arguments": wholeness.HF_ARGUMENTS,
        "shard": checkpoint.SHARD.pattern,
        "rank_file": wholeness.RANK_FILE.pattern,
        "zips": list(formats.ZIP_NAMES),
        "always_zips": list(formats.ALWAYS_ZIP),
        "depth": listing.DEPTH,
        "tail": formats.TAIL_BYTES,
        "most_head": formats.MOST_HEAD,
    }
