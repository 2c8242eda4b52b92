"""Pages, and parts of pages, that are made from the code: what is made cannot fall behind it."""
