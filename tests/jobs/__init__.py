"""Programs that tests run in several processes under torchrun; each is a list of checks that all ranks make together."""
