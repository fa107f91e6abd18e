"""No number in the library comes from a global generator: noise is a function of (seed, step, particle, stream)."""

import ast
from collections import Counter

import pytest

# Where the rule is broken, how often and why. The list is exact.
_UNDER_QUARANTINE = "prediction samples targets under quarantine, with a seed of its own"
_LOOKS_ONLY = "sees whether a network draws by itself"
ALLOWED = {
    ("src/bayesprop/likelihoods/bernoulli.py", "torch.bernoulli"): (1, _UNDER_QUARANTINE),
    ("src/bayesprop/likelihoods/categorical.py", "torch.rand_like"): (1, _UNDER_QUARANTINE),
    ("src/bayesprop/likelihoods/gaussian.py", "torch.randn_like"): (1, _UNDER_QUARANTINE),
    ("src/bayesprop/likelihoods/heteroscedastic_gaussian.py", "torch.randn_like"): (1, _UNDER_QUARANTINE),
    ("src/bayesprop/likelihoods/poisson.py", "torch.poisson"): (1, _UNDER_QUARANTINE),
    ("src/bayesprop/likelihoods/student_t.py", "torch.distributions"): (1, _UNDER_QUARANTINE),
    ("src/bayesprop/inspection.py", "torch.default_generator.get_state"): (1, _LOOKS_ONLY),
    ("src/bayesprop/inspection.py", "torch.cuda.get_rng_state"): (1, _LOOKS_ONLY),
    ("src/bayesprop/training/capture.py", "torch.default_generator.get_state"): (2, _LOOKS_ONLY),
    ("src/bayesprop/testing/method_suite.py", "torch.get_rng_state"): (
        2,
        "the exam looks whether a method left it alone",
    ),
    ("src/bayesprop/rng.py", "torch.random.fork_rng"): (1, "quarantine keeps the user's state"),
    ("src/bayesprop/rng.py", "torch.default_generator.manual_seed"): (1, "quarantine seeds a private state"),
    ("src/bayesprop/rng.py", "torch.cuda.manual_seed"): (1, "quarantine seeds a private state"),
}

# Functions that draw from torch's global generator unless they are given another one.
DRAWS = {
    *("bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like", "randint", "randint_like", "randn"),
    *("randn_like", "randperm"),
}
FILLS = {
    *("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_"),
    *("kaiming_normal_", "kaiming_uniform_", "orthogonal_", "sparse_", "trunc_normal_", "xavier_normal_"),
    "xavier_uniform_",
}
# Functions that read, seed or replace the global state itself.
CUDA_STATES = ("manual_seed", "seed", "initial_seed", "set_rng_state", "get_rng_state")
STATES = ("torch.manual_seed", "torch.seed", "torch.initial_seed", "torch.set_rng_state", "torch.get_rng_state")
STATE_PREFIXES = ("torch.random.", "torch.default_generator.", *(f"torch.cuda.{name}" for name in CUDA_STATES))
PRIVATE_NUMPY = {"default_rng", "RandomState", "Generator", "SeedSequence", "PCG64", "Philox"}


def full_names(tree):
    """Local name -> full name, from the imports anywhere in a file."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names if alias.asname}
            names |= {alias.name.split(".")[0]: alias.name.split(".")[0] for alias in node.names if not alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def is_global(name, call):
    """Whether a call by this full name uses a global generator."""
    module, _, last = name.rpartition(".")
    given = any(keyword.arg == "generator" for keyword in call.keywords)
    if name in STATES or name.startswith(STATE_PREFIXES):
        return True
    if name.startswith("numpy.random."):
        return last not in PRIVATE_NUMPY or not (call.args or call.keywords)
    if module == "random":
        return last != "Random" or not call.args
    if name == "torch.distributions":
        return True
    if module == "torch" and last in DRAWS:
        return not given
    return last in FILLS and not given


def global_draws(tree):
    names = full_names(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            first, _, rest = ast.unparse(node.func).partition(".")
            name = names.get(first, first) + (f".{rest}" if rest else "")
            if name.startswith("torch.distributions.") and name.endswith((".sample", ".rsample")):
                name = "torch.distributions"  # whose arguments are no part of the name
            if is_global(name, node):
                found.append((name, node.lineno))
    return found


def test_nothing_draws_from_a_global_generator(sources):
    lines, found = {}, Counter()
    for source in sources:
        for name, line in global_draws(source.tree):
            found[source.name, name] += 1
            lines.setdefault((source.name, name), []).append(line)
    new = [
        f"{file}:{lines[file, name]}: {name}, {count} times"
        for (file, name), count in found.items()
        if ALLOWED.get((file, name), (0, ""))[0] < count
    ]
    old = [f"{file}: {name}" for (file, name), (count, _) in ALLOWED.items() if found[file, name] < count]
    assert not new, "use rng.Rng, or rng.quarantine around code of others:\n" + "\n".join(new)
    assert not old, "not there any more; take these out of ALLOWED:\n" + "\n".join(old)


def test_every_exception_has_a_reason():
    assert len(ALLOWED) == 13
    assert all(count > 0 and len(reason.split()) > 2 for count, reason in ALLOWED.values())


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.manual_seed(0)",
        "import torch\ntorch.randn(3)",
        "from torch import randn as noise\nnoise(3)",
        "import torch\ntorch.randn_like(x)",
        "import torch\ntorch.random.get_rng_state()",
        "import torch\ntorch.cuda.manual_seed_all(1)",
        "x.normal_()",
        "torch.empty(3).uniform_(0, 1)",
        "from torch.nn import init\ninit.xavier_normal_(w)",
        "import numpy as np\nnp.random.rand(3)",
        "import numpy as np\nnp.random.seed(1)",
        "import numpy as np\nnp.random.default_rng()",
        "from numpy.random import normal\nnormal()",
        "import random\nrandom.random()",
        "import torch\ntorch.distributions.Normal(0, 1).sample()",
    ],
)
def test_global_draws_are_seen(text):
    assert len(global_draws(ast.parse(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.randn(3, generator=g)",
        "x.normal_(generator=g)",
        "import numpy as np\nnp.random.default_rng(3)",
        "import numpy as np\nnp.random.RandomState(1)",
        "import random\nrandom.Random(3)",
        "from bayesprop.kernels import noise\nnoise.normal(keys, 0, 1, 3)",
        "generator.normal(size=3)",
        "import torch\ntorch.distributions.Normal(0, 1)",
    ],
)
def test_private_draws_are_fine(text):
    assert global_draws(ast.parse(text)) == []
