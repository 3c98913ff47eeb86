"""The scripts' small parts: figures as Python writes them, levels of log lines, morphing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Page

from apps.core import clock
from apps.dashboard import formats, sparklines

VALUES = [None, 0, 0.004, 0.0424, 0.42, 0.999, 4.2, 9.99, 42.06, 99.95, 421.4, 999.6, 4210, 1234567]
SECONDS = [None, 0, 0.42, 9.94, 10.4, 45, 59.6, 192, 3599, 7500, 86_399, 270_000]
AGES = [1, 12, 180, 7200, 86_400, 4 * 86_400, 40 * 86_400, -90]


@pytest.fixture
def modules(page: Page) -> Page:
    """A page that has loaded, from which modules can be imported."""
    page.goto("/fleet/")
    return page


def _call(page: Page, module: str, function: str, values: list[Any]) -> list[Any]:
    script = """async ([module, name, values]) => {
      const found = await import(module);
      return values.map((value) => found[name](value));
    }"""
    found: list[Any] = page.evaluate(script, [f"/static/js/pieces/{module}.js", function, values])
    return found


def test_figures_are_those_of_python(modules: Page) -> None:
    assert _call(modules, "format", "significant", VALUES) == [formats.significant(value) for value in VALUES]
    assert _call(modules, "format", "grouped", VALUES) == [formats.grouped(value) for value in VALUES]
    assert _call(modules, "format", "duration", SECONDS) == [formats.duration(value) for value in SECONDS]
    shares = [None, 0.001, 0.124, -0.5, 40]
    assert _call(modules, "format", "change", shares) == [formats.change(share) for share in shares]


def test_relative_times_are_those_of_python(modules: Page) -> None:
    now = clock.now()
    moments = [now - timedelta(seconds=age) for age in AGES]
    script = """async ([moments, now]) => {
      const { relative } = await import('/static/js/pieces/format.js');
      return moments.map((moment) => relative(new Date(moment), now));
    }"""
    found = modules.evaluate(script, [[moment.isoformat() for moment in moments], now.timestamp() * 1000])
    assert found == [formats.relative(moment, now) for moment in moments]


def test_sparklines_are_those_of_python(modules: Page) -> None:
    values: list[float | None] = [0.0, 2.0, None, 1.0, 7.25, None, None, 3.0]
    assert _call(modules, "sparks", "path", [values]) == [sparklines.path(values)]


def test_levels_of_log_lines(modules: Page) -> None:
    lines = {
        "E1130 10:11:12.000000 42 model.cc:99] gone": "error",
        "2026-11-30T12:32:52Z E 5822 model.cc:99] gone": "error",
        "2026-11-30T12:32:52Z W 5822 metrics.cc:12] no GPU": "warning",
        '2026-11-30T12:32:52Z I 5822 server.cc:1] "failed requests: 0"': "info",
        "0.01.272.912 I srv    load_model: loading model": "info",
        "| server_extensions | trace logging statistics": "info",
        "RuntimeError: no space": "error",
        "error: cannot write tensor: No space left on device": "error",
        "warning tensor blk.3 stays F32": "warning",
        "DEBUG connecting": "debug",
        "Traceback (most recent call last):": "error",
    }
    found = _call(modules, "log", "levelOf", list(lines))
    assert dict(zip(lines, found, strict=True)) == lines


def test_morphing_keeps_what_the_person_does(modules: Page) -> None:
    script = """async () => {
      const { morph } = await import('/static/js/pieces/morph.js');
      const host = document.createElement('div');
      document.body.append(host);
      const list_ = (rows) => `<ul id="m">${rows}</ul>`;
      const row = (open, words, value) =>
        `<li data-key="b"><details ${open}><summary>${words}</summary>${words}</details>` +
        `<input id="i" value="${value}"></li>`;
      host.innerHTML = list_(`<li data-key="a">a</li>${row('open', 's', '')}`);
      const list = host.firstChild;
      const second = host.querySelector('[data-key=b]');
      const input = host.querySelector('input');
      input.focus();
      input.value = 'typed';
      const fresh = document.createElement('div');
      fresh.innerHTML = list_(`<li data-key="c">c</li>${row('', 't', 'old')}`);
      fresh.firstChild.className = 'new';
      morph(list, fresh.firstChild);
      const found = {
        same: host.querySelector('[data-key=b]') === second,
        focused: document.activeElement === input,
        typed: input.value,
        open: host.querySelector('details').open,
        text: [...host.querySelectorAll('li')].map((node) => node.textContent),
        name: list.className,
      };
      host.remove();
      return found;
    }"""
    assert modules.evaluate(script) == {
        "same": True, "focused": True, "typed": "typed", "open": True, "text": ["c", "tt"], "name": "new",
    }  # fmt: skip
