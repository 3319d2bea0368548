"""Operations on live bookies and clusters."""
