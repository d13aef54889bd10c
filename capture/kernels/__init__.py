"""The passes over a tensor that `capture.statistics` chooses from: C on the host, Triton or plain torch elsewhere."""
