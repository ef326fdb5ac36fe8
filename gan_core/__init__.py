from gan_core.old_names import put_up_signpost

put_up_signpost()
