from gan_core.moved import put_up_signpost

put_up_signpost()
