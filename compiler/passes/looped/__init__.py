"""Operations as loops over parts of their result."""
