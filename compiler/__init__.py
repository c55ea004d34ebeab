"""The tpuc compiler: HLO text to TPU programs. Any file may be imported."""
