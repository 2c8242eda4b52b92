"""The live page: it reads run records and nothing else.

`Page` is the web application, a `Feed` the lines of one run, and `Controls` what a person may do to a fleet on this
machine. What the page looks like is in `assets`; the browser gets the lines and works out everything else.
"""

from tolfl.dashboard.controls import Command, Controls
from tolfl.dashboard.feeds import Feed, feeds_of
from tolfl.dashboard.page import Page
from tolfl.dashboard.serving import address_of, listen, serve, served

__all__ = ["Command", "Controls", "Feed", "Page", "address_of", "feeds_of", "listen", "serve", "served"]
