"""Pictures, drawn to PNG without a display. Only this package and `codedfl.paper` import matplotlib."""

from codedfl.plotting._canvas import new_figure, to_png
from codedfl.plotting._curves import Clock, SeedCurves, draw_curves, draw_seed_curves
from codedfl.plotting._devices import draw_audit, draw_contract, draw_federation
from codedfl.plotting._sweep import can_draw_sweep, draw_sweep
from codedfl.plotting._theory import draw_theory

__all__ = [
    "Clock",
    "SeedCurves",
    "can_draw_sweep",
    "draw_audit",
    "draw_contract",
    "draw_curves",
    "draw_federation",
    "draw_seed_curves",
    "draw_sweep",
    "draw_theory",
    "new_figure",
    "to_png",
]
