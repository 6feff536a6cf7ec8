"""The vocabulary every part shares: faults, leases, blast radius, evidence. Standard library only."""
