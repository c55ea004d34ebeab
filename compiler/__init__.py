"""The tpuc compiler: HLO text to TPU programs."""
