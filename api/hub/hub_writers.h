/* The handlers of the Hub's facade that publish, for the table in hub_publish.c. Each fills the response with the whole
 * answer, or with an error. They may wait for the disk. Private to api/hub/. */
#ifndef TD_API_HUB_HUB_WRITERS_H
#define TD_API_HUB_HUB_WRITERS_H

#include "api/hub/hub_write.h"
#include "http/body_sink.h"

/* hub_repos.c */
void td_hub_create_repo(struct td_hub_write *write);       /* POST /api/repos/create */
void td_hub_delete_repo(struct td_hub_write *write);       /* DELETE /api/repos/delete */
void td_hub_move_repo(struct td_hub_write *write);         /* POST /api/repos/move */
void td_hub_set_settings(struct td_hub_write *write);      /* PUT .../settings */
void td_hub_refuse_discussion(struct td_hub_write *write); /* POST .../discussions, also of pull requests */

/* hub_branches.c; revision: the name of the branch or tag, but of create_tag what the tag shall name */
void td_hub_create_branch(struct td_hub_write *write); /* POST .../branch/{name} */
void td_hub_create_tag(struct td_hub_write *write);    /* POST .../tag/{revision} */
void td_hub_delete_ref(struct td_hub_write *write);    /* DELETE .../branch/{name}, .../tag/{name} */
void td_hub_squash(struct td_hub_write *write);        /* POST .../super-squash/{branch} */

/* hub_lfs.c */
void td_hub_lfs_batch(struct td_hub_write *write); /* POST /{id}.git/info/lfs/objects/batch */

/* hub_preupload.c */
void td_hub_preupload(struct td_hub_write *write);     /* POST .../preupload/{revision} */
void td_hub_validate_yaml(struct td_hub_write *write); /* POST /api/validate-yaml */
void td_hub_check_write(struct td_hub_write *write);   /* GET .../auth-check/write */

/* hub_xet.c: POST .../xet/{session}/... ; begin as below */
void td_hub_give_xet_token(struct td_hub_write *write); /* GET .../xet-write-token/{revision} */
struct td_body_sink *td_hub_begin_xet(struct td_hub_write *write);
void td_hub_end_xet(struct td_hub_write *write);

/* hub_commit.c: POST .../commit/{revision}. begin returns a sink, or NULL after it answered. */
struct td_body_sink *td_hub_begin_commit(struct td_hub_write *write);
void td_hub_end_commit(struct td_hub_write *write);

#endif
