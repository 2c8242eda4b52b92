"""One browser for all tests of a worker, and a page for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeAlias

import pytest

from tests.dashboard.browser import Browser, chromium
from tests.host_interfaces import interfaces_lock
from tolfl.dashboard import Page, address_of, listen, served

Opened: TypeAlias = Callable[..., str]


@pytest.fixture(scope="session")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    """Return the browser as if just started; no test may end with a complaint or a request to elsewhere."""
    one_browser.prefer(prefers_color_scheme="light", prefers_reduced_motion="no-preference")
    with interfaces_lock():
        yield one_browser
    assert one_browser.complaints() == []
    elsewhere = [url for url in one_browser.requested() if not url.startswith(("http://127.0.0.1:", "data:"))]
    assert elsewhere == []
    one_browser.run("sessionStorage.clear(); localStorage.clear();")


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Serve a page and open it in the browser; return its address."""
    with ExitStack() as stack:

        def open_page(page: Page, width: int = 1280, fragment: str = "") -> str:
            listening = listen("127.0.0.1", 0)
            stack.enter_context(served(page, listening))
            browser.open(address_of(listening) + fragment, width)
            return address_of(listening)

        yield open_page
