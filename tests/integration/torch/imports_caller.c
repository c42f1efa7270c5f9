/* A library that calls another one's function; linked in several ways. */
extern int doubled(int value);
int call(int value);
int call(int value) { return doubled(value) + 1; }
/* Read-only once the loader has written it. */
extern int (*const relocated[])(int);
int (*const relocated[])(int) = {call};
