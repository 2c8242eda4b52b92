"""The live page: it reads run records and nothing else.

`Page` is the web application over the readers of some runs. `assets` has the page itself; the browser gets
records, their descriptions and the history of failures, and works out the state of the fleet at every moment. Of a
fleet elsewhere it gets the last alarms of every device beside them, from the caller that polls the devices.
"""

from tolfl.dashboard.page_server import (
    AlarmsOfDevice,
    Page,
    PageCommand,
    ShownAlarm,
    address_of,
    listen,
    serve,
    served,
)

__all__ = ["AlarmsOfDevice", "Page", "PageCommand", "ShownAlarm", "address_of", "listen", "serve", "served"]
