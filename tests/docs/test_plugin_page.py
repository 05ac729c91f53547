"""The schemes on ``docs/plugins.md`` are those of the template, and train as it does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from codedfl.losses import SOFTMAX
from codedfl.schemes import fedavg
from codedfl.training import LearningRate, Scheme, train
from tests.docs.pages import DOCS, ROOT, blocks
from tests.problems import make_federation, make_setting

RATE = LearningRate(0.02)
TEMPLATE = ROOT / "examples" / "plugin"


@pytest.fixture(autouse=True)
def _template(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(TEMPLATE / "src"))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "codedfl_template"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the blocks of the page define, executed in their order."""
    names: dict[str, Any] = {}
    for line, language, code, _ in blocks(DOCS / "plugins.md"):
        if language == "python":
            exec(compile("\n" * line + code, "docs/plugins.md", "exec"), names)
    return names


def trained(scheme: Scheme) -> Any:
    return train(scheme.prepare(make_setting(make_federation((40, 60, 50, 33), 6, 3), local_steps=3)), RATE, 12)


@pytest.mark.parametrize(
    ("module", "name", "options"),
    [
        ("scheme", "step_decay", {"every": 4}),
        ("fedprox", "fedprox", {"pull": 0.5}),
        ("scaffold", "scaffold", {}),
    ],
)
def test_a_scheme_of_the_page_trains_as_that_of_the_template(
    page: dict[str, Any], module: str, name: str, options: dict[str, Any]
) -> None:
    of_template: Callable[..., Scheme] = getattr(import_module(f"codedfl_template.{module}"), name)
    shown, expected = trained(page[name](**options)), trained(of_template(**options))
    np.testing.assert_array_equal(shown.model, expected.model)
    assert shown.progress.ledger.bits_up.tolist() == expected.progress.ledger.bits_up.tolist()
    assert not np.array_equal(shown.model, trained(fedavg()).model)


def test_the_loss_of_the_page_is_the_one_that_is_minimised(page: dict[str, Any]) -> None:
    result = trained(page["logistic"]())
    assert result.prepared.loss is SOFTMAX
    assert result.final.loss < result.curve[0].loss == pytest.approx(np.log(3), rel=1e-6)


def test_the_readme_of_the_template_lists_its_modules() -> None:
    text = (TEMPLATE / "README.md").read_text(encoding="utf-8")
    for path in (TEMPLATE / "src" / "codedfl_template").glob("[a-z]*.py"):
        assert f"| `{path.name}` |" in text
