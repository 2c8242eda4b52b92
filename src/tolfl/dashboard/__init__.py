"""The live page: it reads run records and nothing else.

`Page` is the web application over the readers of some runs. What the page looks like is in `assets`; the browser gets
records, their descriptions and the history of failures, and works out the state of the fleet at every moment.
"""

from tolfl.dashboard.page_server import Page, PageCommand, address_of, listen, serve, served

__all__ = ["Page", "PageCommand", "address_of", "listen", "serve", "served"]
