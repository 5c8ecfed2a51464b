"""The mixer: takes sealed reports from people, and hands them on in random order without their senders.

A program, a database and a key of its own, run by somebody who does not collude with the collector. It can open no
report, and what it hands on names nobody.
"""
