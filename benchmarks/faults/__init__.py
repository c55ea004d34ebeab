"""What may go wrong around a run, done on purpose: interrupts, kills, full disks, threads, long lives."""
