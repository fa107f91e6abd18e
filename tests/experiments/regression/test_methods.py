"""Every method of the library is asked about the gap, or there is a reason why not."""

import bayesprop as bp
from bayesprop.experiments.regression.methods import GAP
from bayesprop.experiments.regression.settings import PAPER, SMOKE
from bayesprop.inference.method import Method

# Others are variants of those that are asked, or not made for quantities.
ASKED = {
    *("HMC", "BayesByBackprop", "ADVI", "IVON", "Graves", "MCDropout", "GaussianDropout", "SparseVariationalDropout"),
    *("DVI", "Flow", "Boosting", "FunctionalVI", "ConcreteDropout"),
    *("Laplace", "SWAG", "SGLD", "PSGLD", "SGHMC", "DeepEnsemble", "NNGP", "DeepKernel", "MAP"),
}


def test_methods_are_asked_with_settings_of_each_scale():
    made = [(type(asked.make(scale)).__name__, asked.make(scale)) for asked in GAP.values() for scale in (SMOKE, PAPER)]
    assert {name for name, _ in made} == ASKED
    assert {entry.name for entry in bp.methods()} >= ASKED
    assert all(isinstance(method, Method) for _, method in made)


def test_steps_are_those_of_the_settings():
    assert GAP["hmc"].steps(PAPER) is None
    assert GAP["sgld"].steps(PAPER) == PAPER.chain_steps
    assert GAP["map"].steps(SMOKE) == SMOKE.steps
    assert GAP["hmc"].make(PAPER).chains == 8
    assert [name for name, asked in GAP.items() if asked.whole] == ["hmc", "nngp"]
