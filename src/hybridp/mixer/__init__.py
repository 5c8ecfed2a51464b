"""The mixer hands sealed reports on in random order, without their senders; who runs it does not collude with the
collector, and has a program, a database and a key of their own that opens no report."""
