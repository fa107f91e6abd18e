"""Posteriors on disk: one safetensors file with everything but the network's code.

It carries the posterior's tensors, buffers, prior, likelihood, method, N, scaling, labels, seed and history.
Parameters that were fixed during training are not stored (they may be a large pre-trained trunk); their checksum is,
and loading into a network whose fixed parameters differ is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bayesprop import likelihoods, priors, specification, storage
from bayesprop.errors import CheckpointError
from bayesprop.layout import Layout
from bayesprop.model import Model
from bayesprop.posteriors.posterior import Context, Posterior, posterior_classes

__all__ = ["describe_fixed", "layout_differences", "load", "padding_rows", "save"]

# What a model has learnt about its network by running it, and must know to predict.
BEHAVIOUR = ("vectorised", "draws_globally", "draws_predicting", "writes_inputs", "vmap_failure")


def describe_fixed(model: Model) -> dict[str, Any]:
    """The parameters that keep their values: their names, and a checksum in place of the values."""
    parameters = dict(model.network.named_parameters())
    values = {name: parameters[name] for name in model.fixed_names}
    return {"names": list(values), "sha256": storage.digest("", values)}


def padding_rows(model: Model) -> dict[str, Tensor]:
    """Rows of embeddings that stand for padding: the network's own values, which theta does not hold."""
    return {name: model.network.get_parameter(name)[row].detach() for name, row in model._padding.items()}


def layout_differences(layout: Layout, stored: Sequence[Mapping[str, Any]]) -> list[str]:
    """What differs between a network's columns and those in a file; the types of numbers too if nothing else does."""
    mine, theirs = ({row["name"]: row["dtype"] for row in rows} for rows in (layout.to_json(), stored))
    return layout.differences(stored) or [
        f"{name}: {mine[name]} in the network, {theirs[name]} in the file"
        for name in mine
        if mine[name] != theirs[name]
    ]


def save(posterior: Posterior, path: str | os.PathLike[str]) -> None:
    """Write `posterior` to `path`, atomically."""
    model, context = posterior.model, posterior.context
    tensors: dict[str, Tensor] = {f"posterior.{n}": t for n, t in posterior.tensors().items()}
    tensors |= {f"buffer.{n}": t for n, t in posterior.buffers.items()}
    tensors |= {f"padding.{n}": t for n, t in padding_rows(model).items()}
    document = {
        "kind": "posterior",
        "class": type(posterior).__name__,
        "layout": model.layout.to_json(),
        "fixed": describe_fixed(model),
        "behaviour": {name: getattr(model, name) for name in BEHAVIOUR} | {"written": sorted(model._written)},
        "prior": specification.to_json(model.prior, tensors, "prior"),
        "likelihood": specification.to_json(model.likelihood, tensors, "likelihood"),
        "random": specification.to_json(model.random_patterns, tensors, "random"),
        "fixed_patterns": specification.to_json(model.fixed_patterns, tensors, "fixed_patterns"),
        "output": specification.to_json(model.output, tensors, "output"),
        "method": specification.to_json(context.method, tensors, "method"),
        "scaling": specification.to_json(context.scaling, tensors, "scaling"),
        "classes": specification.to_json(context.classes, tensors, "classes"),
        "num_data": context.num_data,
        "seed": context.seed,
        "history": context.history,
        "tf32": context.tf32,
        "torch": torch.__version__,
    }
    storage.write(path, document, tensors)


def load(
    path: str | os.PathLike[str],
    *,
    network: nn.Module,
    prior: Any = None,
    likelihood: likelihoods.Likelihood | None = None,
    output: Callable[[Any], Tensor] | None = None,
) -> Posterior:
    """Read a posterior. `network` is an object of the class it was trained with; its random weights do not matter.

    `prior`, `likelihood` and `output` are only needed when they hold functions of yours, which no file can carry.
    """
    document, tensors = storage.read(path)
    if document.get("kind") != "posterior":
        raise CheckpointError(
            f"{path} holds no posterior",
            received=f"a file of kind {document.get('kind')!r}",
            expected="what posterior.save(path) writes",
            write=f'bp.fit(model, data, checkpoint="{path}", resume=True)',
        )

    def rebuild(name: str, given: Any = None) -> Any:
        return given if given is not None else specification.from_json(document[name], tensors, argument=name)

    built_prior: priors.Prior | dict[str, priors.Prior] = rebuild("prior", prior)
    try:
        model = Model(
            network,
            likelihood=rebuild("likelihood", likelihood),
            prior=built_prior,
            random=rebuild("random"),
            fixed=rebuild("fixed_patterns"),
            output=rebuild("output", output),
        )
    except ValueError as error:
        raise CheckpointError(
            f"{path} does not fit this network: {error}", expected="the network that was trained"
        ) from error
    differences = _parameter_differences(model, document) + _buffer_differences(model, tensors)
    if differences:
        thawed = [name for name in document["fixed"]["names"] if name in model.layout.by_name]
        raise CheckpointError(
            f"{path} does not fit this network",
            received="; ".join(differences[:8]),
            expected="the network that was trained",
            write=f'network.get_parameter("{thawed[0]}").requires_grad_(False)' if thawed else "",
        )
    if document["fixed"] != describe_fixed(model):
        raise CheckpointError(
            f"{path} was trained around other fixed parameters",
            received=f"values of {', '.join(model.fixed_names) or 'none'} that differ from those in training",
            expected="the network with the same fixed weights loaded",
            write="network.load_state_dict(pretrained); bp.load(path, network=network)",
        )
    for name, row in padding_rows(model).items():
        row.copy_(tensors[f"padding.{name}"])
    for name in BEHAVIOUR:
        setattr(model, name, document["behaviour"][name])
    model._written = frozenset(document["behaviour"]["written"])
    device = model.device

    def part(prefix: str) -> dict[str, Tensor]:
        return {n.removeprefix(prefix): t.to(device) for n, t in tensors.items() if n.startswith(prefix)}

    scaling = rebuild("scaling")
    classes = rebuild("classes")
    context = Context(
        document["num_data"],
        scaling.to(device) if scaling is not None else None,
        list(classes) if classes is not None else None,
        document["seed"],
        _method(document["method"], tensors),
        document["history"],
        tf32=document.get("tf32", False),
    )
    cls = posterior_classes().get(document["class"])
    if cls is None:
        raise CheckpointError(
            f"{path} holds a posterior of a kind that is not known here",
            received=document["class"],
            expected=f"one of {', '.join(sorted(posterior_classes()))}; import the module that defines it first",
        )
    return cls.from_tensors(model, part("posterior."), part("buffer."), context)


def _parameter_differences(model: Model, document: Mapping[str, Any]) -> list[str]:
    """What differs between the network's parameters, learnt and fixed, and those of the file."""
    stored, was_fixed, is_fixed = document["layout"], set(document["fixed"]["names"]), set(model.fixed_names)
    lines = {}
    for name in was_fixed ^ is_fixed:
        if name in is_fixed:
            learnt = any(row["name"] == name for row in stored)
            lines[name] = "was learnt in training, and is fixed here" if learnt else "is fixed here and not in the file"
        else:
            learnt = name in model.layout.by_name
            lines[name] = (
                "was fixed in training, and is learnt here" if learnt else "was fixed and is not in the network"
            )
    # Such a name is missing among the columns of one side, which would be only half of what there is to say.
    others = [line for line in layout_differences(model.layout, stored) if line.split(" ")[0] not in lines]
    return sorted(f"{name} {line}" for name, line in lines.items()) + others


def _buffer_differences(model: Model, tensors: dict[str, Tensor]) -> list[str]:
    """What differs between the network's buffers, padding rows among them, and those of the file.

    In the file a buffer has a leading particle axis.
    """
    theirs = {n.removeprefix("buffer."): list(t.shape[1:]) for n, t in tensors.items() if n.startswith("buffer.")}
    mine = {name: list(buffer.shape) for name, buffer in model.buffers.items()}
    lines = [f"the buffer {name} is in the file, not in the network" for name in theirs.keys() - mine.keys()]
    lines += [f"the buffer {name} is in the network, not in the file" for name in mine.keys() - theirs.keys()]
    lines += [
        f"the buffer {name}: {mine[name]} in the network, {theirs[name]} in the file"
        for name in mine.keys() & theirs.keys()
        if mine[name] != theirs[name]
    ]
    padded = {n.removeprefix("padding.") for n in tensors if n.startswith("padding.")}
    lines += [f"{name} has a padding row on one side only" for name in padded ^ padding_rows(model).keys()]
    return sorted(lines)


def _method(document: Any, tensors: dict[str, Tensor]) -> Any:
    """The method as an object where that is possible; a description where it held a function of the user's."""
    try:
        return specification.from_json(document, tensors)
    except CheckpointError:
        return document
