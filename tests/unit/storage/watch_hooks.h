/* A kernel without inotify, by the linker's --wrap of inotify_init1, inotify_add_watch and fstatfs64. */
#ifndef TD_TESTS_UNIT_STORAGE_WATCH_HOOKS_H
#define TD_TESTS_UNIT_STORAGE_WATCH_HOOKS_H

extern int init_fails, add_fails;         /* errno of inotify_init1 and of inotify_add_watch; 0: they work */
extern unsigned long file_system_is_said; /* the f_type that fstatfs returns; 0: the real one */

#endif
