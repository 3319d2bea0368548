"""InterleavedLedgerStorage, in the making: no ``ledgerStorageClass`` leads here before it is whole."""
