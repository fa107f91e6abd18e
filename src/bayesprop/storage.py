"""Files that survive: one safetensors file with a JSON header, written atomically and checked when read.

A file holds tensors and one JSON document. It is written beside its final place, flushed to the disk and then renamed,
so that a full disk or a power cut leaves the previous file as it was. Header and tensors carry a SHA-256, so that a
file cut short or a flipped byte is an error and never a wrong posterior. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bayesprop.errors import CheckpointError

__all__ = ["digest", "read", "write"]

FORMAT = "bayesprop 1"


def digest(document: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of a text and of tensors with their names, types and shapes."""
    found = hashlib.sha256(document.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous().cpu()
        found.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def write(path: str | os.PathLike[str], document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    """Write `document` and `tensors` to `path`; the previous file stays until the new one is complete."""
    target = Path(path)
    if not target.name:
        raise CheckpointError("a file needs a name", received=repr(os.fspath(path)), write='"folder/name.bayes"')
    text = json.dumps(document, sort_keys=True)
    # Clones: safetensors refuses tensors that share storage, and views into theta do.
    stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        temporary.touch()
        mode = temporary.stat().st_mode  # that of any new file here; safetensors would leave it to the owner alone
        save_file(stored, temporary, {"format": FORMAT, "document": text, "sha256": digest(text, stored)})
        temporary.chmod(mode)
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, target)
    except (OSError, SafetensorError) as error:
        kept = "the previous file is untouched" if os.path.exists(target) else "no file was left behind"
        raise CheckpointError(
            f"could not write {target}: {error}",
            expected=f"room on the disk and permission to write; {kept}",
            write="the same call with another path",
        ) from error
    finally:  # also when a second Ctrl-C comes in the middle; after the rename there is nothing left to remove
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return target


def _remove_leftovers(target: Path) -> None:
    """Unfinished files of processes that were killed while writing: those that nobody has touched for an hour."""
    for part in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > 3600.0:
                part.unlink()


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what `write` wrote; anything that is not exactly that is a CheckpointError."""
    target = Path(path)
    if not os.path.isfile(target):
        raise CheckpointError(
            f"there is no file {target}" + (", it is a folder" if os.path.isdir(target) else ""),
            expected=f"one that was saved by bayesprop ({_neighbours(target)})",
        )
    try:
        # Opened by us first: safetensors says of whatever it cannot open that it is not there.
        with open(target, "rb"), safe_open(target, framework="pt") as file:
            header = file.metadata() or {}
            # Clones: what safetensors returns is the mapped file itself, and would change or vanish with it.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a dict
    except OSError as error:
        raise CheckpointError(
            f"{target} cannot be read: {error}", expected="a file that you have permission to read"
        ) from error
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(
            f"{target} cannot be read: {error}",
            received=f"{target.stat().st_size} bytes that are not a complete safetensors file",
            expected="a file that was saved by bayesprop and copied whole",
        ) from error
    if header.get("format") != FORMAT:
        raise CheckpointError(
            f"{target} is not a file of this library",
            received=f"format {header.get('format')!r}",
            expected=f"format {FORMAT!r}",
        )
    text = header.get("document", "")
    if header.get("sha256") != digest(text, tensors):
        raise CheckpointError(
            f"{target} is damaged: its checksum does not fit its contents",
            expected="the bytes that were written; take an earlier checkpoint or copy the file again",
        )
    return json.loads(text), tensors


def _neighbours(target: Path) -> str:
    """What there is beside a file that is not there, or in the folder that it is, in words."""
    folder = target if os.path.isdir(target) else target.parent
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except FileNotFoundError:
        return f"nor is there a folder {folder}"
    except OSError as error:
        return f"{folder} cannot be looked into: {error.strerror}"
    return f"this folder holds {', '.join(names[:5]) or 'no files'}"
