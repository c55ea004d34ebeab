"""Operations as loops over parts of their result. To be imported from outside: `forms`."""
