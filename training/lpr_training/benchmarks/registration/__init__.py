"""Registration of scan pairs with known relative pose."""
