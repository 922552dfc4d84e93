"""Events in, characters out; knows neither what is done nor why."""
