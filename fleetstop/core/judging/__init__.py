"""What the verdicts rest on: what moved, who took a signal, which ranks fell apart."""
