"""``tpuc view``: one page of HTML about a compiled model, for people to look into and hand around.

To be imported from outside: `collect`, `page_file`.
"""
