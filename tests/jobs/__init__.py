"""Programs that tests run in several processes under torchrun: lists of checks that all ranks make together."""
