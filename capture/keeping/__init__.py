"""Operations kept whole (`--save`) in a bundle beside the log: tensors, arguments, random state; and run again."""
