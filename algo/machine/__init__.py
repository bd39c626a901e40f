"""What the other rooms need of this machine: files written whole, ports, child processes."""
