"""A real federation: the same schemes on devices of their own, with messages that Flower carries."""

from codedfl.flower._quiet import be_quiet

be_quiet()  # before anything imports flwr
