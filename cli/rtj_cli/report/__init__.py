"""`rtj report`: one page of a job's night, for people who were not there.

One file that asks for nothing: no script, no font, no request. Must never leave out what was not to
be had: it is named on the page.
"""
