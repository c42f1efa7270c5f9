/* A library that calls its own exported function, which others may come before. */
int halved(int value);
int halved(int value) { return value / 2; }
int call(int value);
int call(int value) { return halved(value) + 1; }
