"""Uploads that several schemes share."""

from __future__ import annotations

from typing import Any

from codedfl.identity import identity
from codedfl.setting import Setting
from codedfl.training import DevicePlan, PreparedScheme, Scheme


class SharedUploads:
    """A cache of what servers hold, so that schemes with the same upload share it."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def prepare(self, scheme: Scheme, setting: Setting, plan: DevicePlan) -> PreparedScheme:
        """Prepare a scheme; reuse an upload that stands for all rows under the same code."""
        if scheme.upload is None or not plan.coded_for_all:
            return scheme.prepare(setting, plan=plan)
        code = scheme.depends_on(setting).code
        key = identity((scheme.upload, setting.federation, setting.streams, code, setting.privacy))
        if key not in self._known:
            self._known[key] = scheme.held_in(setting, plan)
        return scheme.prepared(setting, plan, self._known[key], scheme.upload_cost(setting, plan))
