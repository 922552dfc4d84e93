"""Use cases: async, over ports and core only; they print nothing and know no protocol."""
