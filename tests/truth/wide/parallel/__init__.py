"""What subjects of several ranks share: layouts, the training step, the bugs of both."""
