/* The library whose function is led elsewhere. */
int doubled(int value);
int doubled(int value) { return 2 * value; }
