"""Facts about the operations of one log: modules, data flow, shapes, shards, collectives, non-finite values."""
